"""Log query over topics named by the catalogue."""
