"""Measurements of the planner on this machine: training steps, messages, contention; and facts about the network."""
