package com.github.globalrefdb.gerrit.moves;

import java.nio.file.Path;

/**
 * The location of this Gerrit, and the daemon that it follows.
 *
 * @param socket the daemon's
 * @param guard this run of the guard
 * @param root the real path of the directory of repositories
 */
public record FollowSettings(Path socket, String guard, Path root) {}
