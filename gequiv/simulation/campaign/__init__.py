"""Campaigns: many draws of many heads, which resume, spread over machines, and end in a report."""
