package com.github.globalrefdb.gerrit.session;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * The identity of a guard that begins a session.
 *
 * @param name for people
 * @param root the real path of the directory of its repositories
 * @param instance Gerrit's instance ID; a server has one
 * @param server Gerrit's server ID; offline programs leave out both
 */
public record Identity(String name, Path root, Optional<String> instance, Optional<String> server) {
  List<String> lines() {
    List<String> lines = new ArrayList<>();
    lines.add("name " + name);
    lines.add("root " + root);
    instance.ifPresent(id -> lines.add("instance " + id));
    server.ifPresent(id -> lines.add("server " + id));
    return lines;
  }
}
