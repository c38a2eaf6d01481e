"""Flower apps of Coterie."""
