/**
 * Keeps Gerrit's indexes and caches up to date when others move refs in this site's repositories: another site's
 * Gerrit, pushes of plain git, and operators. {@link com.github.globalrefdb.gerrit.moves.Follower} reads the daemon's
 * list of moves, {@code Classifier} converts it to {@code Action}s, {@code Pending} schedules them, and {@code
 * GerritActions} executes them.
 */
package com.github.globalrefdb.gerrit.moves;
