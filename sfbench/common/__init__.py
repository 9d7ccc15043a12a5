"""What every stage uses: errors, texts with units, the result document, files written whole."""
