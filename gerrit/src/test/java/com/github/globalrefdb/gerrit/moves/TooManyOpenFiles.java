package com.github.globalrefdb.gerrit.moves;

import static com.github.globalrefdb.gerrit.moves.UnreadableProject.APP;

import com.google.gerrit.entities.Project;
import com.google.gerrit.server.git.GitRepositoryManager;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.eclipse.jgit.errors.RepositoryNotFoundException;
import org.eclipse.jgit.lib.RepositoryCache;

/** A program that reaches its limit of open files: then Gerrit finds no repository, and yet none has gone. */
final class TooManyOpenFiles {
  private TooManyOpenFiles() {}

  public static void main(String[] arguments) throws IOException {
    GitRepositoryManager repositories = UnreadableProject.repositories(Path.of(arguments[0]));
    ProjectPresence presence = UnreadableProject.presence(repositories);
    String first = look(repositories, presence); // loads all classes
    List<InputStream> open = new ArrayList<>();
    String second;
    do { // until no other thread of the JVM closes a file in between
      fill(open);
      second = look(repositories, presence);
    } while (second.startsWith("found"));
    for (InputStream file : open) {
      file.close();
    }
    System.out.println(first + ", " + second);
  }

  private static void fill(List<InputStream> open) {
    try {
      while (true) {
        open.add(new FileInputStream("/dev/null"));
      }
    } catch (IOException e) {
      // The limit is reached.
    }
  }

  private static String look(GitRepositoryManager repositories, ProjectPresence presence) throws IOException {
    RepositoryCache.clear();
    String found = "found";
    try {
      repositories.openRepository(APP).close();
    } catch (RepositoryNotFoundException e) {
      found = "not found";
    }
    return found + " " + presence.isGone(APP) + " " + presence.isGone(Project.nameKey("team/other"));
  }
}
