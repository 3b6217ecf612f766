"""What the planner measures on this machine: training steps, messages, contention; and facts about the network."""
