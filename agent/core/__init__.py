"""Decisions: values in, values out; no clock, environment, log, client or driver."""
