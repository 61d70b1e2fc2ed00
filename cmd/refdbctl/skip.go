package main

const skipHelp = `Left out by default is what Gerrit keeps out of the database: refs/changes/* except .../meta and
.../robot-comments, refs/cache-automerge/*, refs/draft-comments/*, refs/multi-site/version, and
HEAD, which each site has for itself. --all includes them.`
