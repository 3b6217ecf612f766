"""Farias, Ludermir and Bastos-Filho: embarrassingly parallel training of multilayer perceptrons."""
