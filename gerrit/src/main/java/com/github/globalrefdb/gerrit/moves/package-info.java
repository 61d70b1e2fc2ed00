/**
 * Gerrit's indexes and caches follow what others move in this site's repositories: another site's Gerrit, pushes of plain git, and
 * operators. {@link com.github.globalrefdb.gerrit.moves.Follower} reads the daemon's list of moves, {@code Classifier} makes
 * {@code Action}s of it, {@code Pending} orders them, and {@code GerritActions} does them.
 */
package com.github.globalrefdb.gerrit.moves;
