// Package sites holds the proof of Git sites with real git: two daemons, one
// database, and git push over files, smart HTTP and git's own daemon; races,
// crashes, and all that must stay quiet.
//
// The tests run with the git of the PATH, others that are installed, and those
// that GIT_FOR_TEST names: git binaries or their directories, separated by colons.
// REFDB_TEST_LONG=1 makes outages as long as they are in life.
package sites
