package wire

// The paths by which the hook finds the repository's own hooks, below the common Git directory.
const (
	// OwnHooks is a link to the directory whose hooks git would run if the repository were not
	// guarded.
	OwnHooks = "refdb/own-hooks"
	// ChainedHooks is a directory that exists until all git processes from before the installation
	// of the site's hooks have ended. It contains links, named after the hooks, to hooks that
	// earlier versions renamed to NAME.chained, until those are back in their places.
	ChainedHooks = "refdb/chained"
	// Chained is the suffix that earlier versions appended to the names of these hooks.
	Chained = ".chained"
)

// Relay is the beginning of the script that starts refdb-hook from the repository's own directory
// of hooks. Git processes that started before core.hooksPath was set look for hooks there.
const Relay = "#!/bin/sh\n# refdb-hook: "
