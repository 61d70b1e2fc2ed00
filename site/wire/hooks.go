package wire

// Where the hook finds the repository's own hooks, below the common Git directory.
const (
	// OwnHooks is a link to the directory whose hooks git would run if the repository were not guarded.
	OwnHooks = "refdb/own-hooks"
	// ChainedHooks is a directory that is there until gits have ended that began before the site's hooks were in place. It has links to
	// hooks that earlier versions have renamed to NAME.chained, under their own names, until they are back in their places.
	ChainedHooks = "refdb/chained"
	// Chained is what earlier versions added to the names of these hooks.
	Chained = ".chained"
)

// Relay begins the script that starts refdb-hook from the repository's own directory of hooks, where a git looks for hooks
// that has begun before core.hooksPath was set.
const Relay = "#!/bin/sh\n# refdb-hook: "
