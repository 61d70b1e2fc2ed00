package dbtest

// OwnPostgres reports whether this process has started the PostgreSQL server.
func OwnPostgres() bool {
	s, err := thePostgres()
	return err == nil && s.log != nil
}

// ServerDirs returns the directories of the servers that this process runs.
func ServerDirs() (dirs []string) {
	started.mu.Lock()
	defer started.mu.Unlock()
	for _, it := range started.all {
		if server, ok := it.(interface{ Dir() string }); ok {
			dirs = append(dirs, server.Dir())
		}
	}
	return dirs
}
