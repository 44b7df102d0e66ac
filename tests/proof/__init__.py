"""What shows the guarantees besides tests: models, simulations, mutants, and the page that sums them up."""
