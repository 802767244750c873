"""What a model can do: one folder a task, and the registry that everything else loops over."""
