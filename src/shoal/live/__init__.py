"""See a run as it happens: recorders write what callbacks are told into the run folder, a server shows it in a page."""
