package com.github.globalrefdb.gerrit.moves;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gerrit.entities.Project;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;

/**
 * Shows operators the projects that Gerrit knows but finds no repository of, unless they have certainly gone, one a line:
 * {@code refdbctl gerrit check} reads this file. There is none if there are no such projects.
 */
final class WithoutRepositoryFile {
  private final Path file;

  /**
   * @param directory need not exist
   */
  WithoutRepositoryFile(Path directory) {
    file = directory.resolve("without-repository");
  }

  void write(List<Project.NameKey> projects) throws IOException {
    if (projects.isEmpty()) {
      Files.deleteIfExists(file);
      return;
    }
    Files.createDirectories(file.getParent());
    Path written = file.resolveSibling(file.getFileName() + ".new");
    Files.write(written, projects.stream().map(Project.NameKey::get).toList(), UTF_8);
    Files.move(written, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }
}
