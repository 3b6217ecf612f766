"""How sure a prediction is: intervals and sets from scores of rows that networks did not train on; strange rows."""
