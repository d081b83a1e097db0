"""The figures of the budgets: `python -m bench [ROW …]`. A row is a file; what it measured is kept in `results/`."""
