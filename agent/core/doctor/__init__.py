"""Evidence → findings: each check says what it saw, what that means, and who can mend it. Pure."""
