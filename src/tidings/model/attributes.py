"""The values that attributes of events may have."""

__all__ = ["AttributeValue"]

AttributeValue = int | float | str | bool
