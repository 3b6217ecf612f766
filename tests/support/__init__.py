"""What tests share: data, an oracle, a browser, the command line."""
