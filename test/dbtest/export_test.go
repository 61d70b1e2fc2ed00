package dbtest

// ServerDirs returns the directories of the servers that this process runs.
func ServerDirs() (dirs []string) {
	started.mu.Lock()
	defer started.mu.Unlock()
	for _, it := range started.all {
		if p, ok := it.(*process); ok {
			dirs = append(dirs, p.cmd.Dir)
		}
	}
	return dirs
}
