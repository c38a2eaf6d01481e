"""The report page: one HTML file that needs nothing else."""
