"""Labels that are given when the model is asked, and that it was never trained for."""
