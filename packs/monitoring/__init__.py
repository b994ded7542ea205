"""The monitoring pack: the day job of werewolves, and small tasks that look at a machine."""
