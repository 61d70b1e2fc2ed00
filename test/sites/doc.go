// Package sites tests Git sites with real git: two daemons, one database, and git
// push over files, smart HTTP and git's own daemon. It tests races, crashes, and
// when the daemons must say nothing.
//
// The tests run with the git of the PATH, others that are installed, and those
// that GIT_FOR_TEST names: git binaries or their directories, separated by colons.
// REFDB_TEST_LONG=1 makes outages as long as real ones.
package sites
