"""States of a run and its roles: which events change them, without any process."""
