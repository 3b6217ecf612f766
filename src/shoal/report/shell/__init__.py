"""What all pages share: markup, figures, scales, words."""
