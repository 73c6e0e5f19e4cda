"""Records to text. Nothing here prints, reads a clock or opens a file: functions return text or rich renderables."""
