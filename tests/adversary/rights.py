"""Who may do what: before login, after login, through a read-only view, as operator."""
