package com.github.globalrefdb.gerrit.moves;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gerrit.entities.Project;
import com.google.gerrit.server.config.GerritServerConfig;
import com.google.gerrit.server.config.SitePaths;
import com.google.gerrit.server.git.GitRepositoryManager;
import com.google.gerrit.server.git.LocalDiskRepositoryManager;
import com.google.inject.Guice;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.eclipse.jgit.internal.storage.file.FileRepository;
import org.eclipse.jgit.lib.Config;
import org.eclipse.jgit.lib.RepositoryCache;

/** A project team/app that Gerrit does not find, though it has not gone. */
enum UnreadableProject {
  DISK_IS_NOT_MOUNTED {
    @Override
    void breaks(Path root, Path repository) throws IOException {
      Files.move(root, away(root));
    }
  },
  MOUNT_POINT_IS_EMPTY {
    @Override
    void breaks(Path root, Path repository) throws IOException {
      Files.move(root, away(root));
      Files.createDirectory(root);
    }
  },
  LINK_TO_ITS_DISK_LEADS_NOWHERE {
    @Override
    void breaks(Path root, Path repository) throws IOException {
      Files.move(repository, away(root));
      Files.createSymbolicLink(repository, root.resolve("not-mounted/app.git"));
    }
  },
  LINK_ABOVE_IT_LEADS_NOWHERE {
    @Override
    void breaks(Path root, Path repository) throws IOException {
      Files.move(repository.getParent(), away(root));
      Files.createSymbolicLink(repository.getParent(), root.resolve("not-mounted"));
    }
  },
  /** As for a directory without permission to read, but also for root. */
  DIRECTORY_CAN_NOT_BE_READ {
    @Override
    void breaks(Path root, Path repository) throws IOException {
      Files.move(repository.getParent(), away(root));
      Files.createSymbolicLink(repository.getParent(), repository.getParent()); // a loop
    }
  },
  /** Root may read it. */
  DIRECTORY_WITHOUT_PERMISSION {
    @Override
    void breaks(Path root, Path repository) throws IOException {
      Files.setPosixFilePermissions(repository, PosixFilePermissions.fromString("---------"));
    }

    @Override
    boolean isPossible() throws IOException {
      Path directory = Files.createTempDirectory("", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("---------")));
      boolean isReadable = Files.isReadable(directory);
      Files.delete(directory);
      return !isReadable;
    }

    @Override
    void mend(Path root, Path repository) throws IOException {
      Files.setPosixFilePermissions(repository, PosixFilePermissions.fromString("rwxr-xr-x"));
    }
  },
  HEAD_IS_EMPTY {
    @Override
    void breaks(Path root, Path repository) throws IOException {
      Files.writeString(repository.resolve("HEAD"), "");
    }
  };

  static final Project.NameKey APP = Project.nameKey("team/app");
  static final Project.NameKey ALL_PROJECTS = Project.nameKey("All-Projects");

  abstract void breaks(Path root, Path repository) throws IOException;

  boolean isPossible() throws IOException {
    return true;
  }

  /** Lets a directory for tests be deleted. */
  void mend(Path root, Path repository) throws IOException {}

  private static Path away(Path root) {
    return root.resolveSibling("away");
  }

  /** Gerrit's own repositories in {@code site/git}: All-Projects and team/app, beside a directory that is none. */
  static GitRepositoryManager repositories(Path site) throws IOException {
    Config config = new Config();
    config.setString("gerrit", null, "basePath", "git");
    Files.createDirectories(site.resolve("git/team/docs"));
    for (String name : new String[] {"All-Projects.git", "team/app.git"}) {
      new FileRepository(site.resolve("git").resolve(name).toFile()).create(true);
    }
    RepositoryCache.clear();
    return Guice.createInjector(
            binder -> {
              try {
                binder.bind(SitePaths.class).toInstance(new SitePaths(site));
              } catch (IOException e) {
                throw new UncheckedIOException(e);
              }
              binder.bind(Config.class).annotatedWith(GerritServerConfig.class).toInstance(config);
            })
        .getInstance(LocalDiskRepositoryManager.class);
  }

  static ProjectPresence presence(GitRepositoryManager repositories) {
    return new ProjectPresence(((LocalDiskRepositoryManager) repositories)::getBasePath, ALL_PROJECTS);
  }

  /** Deletes team/app. */
  static void delete(Path site) throws IOException {
    Files.move(site.resolve("git/team/app.git"), site.resolve("removed"));
    RepositoryCache.clear();
    assertTrue(Files.notExists(site.resolve("git/team/app.git")));
  }

  void breaks(Path site) throws IOException {
    breaks(site.resolve("git"), site.resolve("git/team/app.git"));
    RepositoryCache.clear();
  }

  void mend(Path site) throws IOException {
    mend(site.resolve("git"), site.resolve("git/team/app.git"));
  }
}
