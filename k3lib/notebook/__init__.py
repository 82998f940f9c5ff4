"""The notebook room: runs a notebook in batch, marks honestly how it ended, and shows it as one HTML file."""
