"""The time of a search. `model.TimeModel` decides what fits, what is reduced, and when training has to end.

`clock` counts seconds and remembers what they decided; `costs` predicts what training takes; `shares` divides a budget
between encoding, training and the end; `trial` measures speed, once, on some rows.
"""
