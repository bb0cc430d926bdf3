"""What a benchmark leaves behind: results, plots, pages."""
