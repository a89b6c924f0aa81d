"""Rules of backup policies: times of schedules, and which backups are kept. Without database and daemons."""
