"""Who signed what, and who may."""
