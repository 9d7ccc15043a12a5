"""The two sides of a comparison as checkouts, and what git knows of them."""
