"""The course: what the days ask, on paper and in tables. Knows the tools below it; knows nothing of pages."""
