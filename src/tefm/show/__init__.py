"""Presentation: terminal tables, pages and plots of what was measured. It computes nothing."""
