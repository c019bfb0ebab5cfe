"""Parts that the loops of one process and the roles of many share."""
