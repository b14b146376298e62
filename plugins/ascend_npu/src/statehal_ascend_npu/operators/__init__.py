"""CANN's operators, known by their schemas: one name has had several, and a call by position reads the wrong one."""
