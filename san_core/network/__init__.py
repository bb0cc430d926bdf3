"""The Scale Adaptive Network: meta learners over a stock CNN, and how it is set up and priced."""
