"""A Flower app that runs Coterie's methods on handwritten digits."""
