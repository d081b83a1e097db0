"""What the one-shot commands do: each reads, decides by the core, and prints."""
