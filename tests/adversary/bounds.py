"""One unit, one session, one core: what each may take from the others."""
