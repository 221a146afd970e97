"""All runs on one page: rows, filters, the sentence at its top."""
